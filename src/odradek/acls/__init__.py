"""ACLs, which say who may do what, as data; and the decision that they lead to. Pure.

    codes     operations, types of resources, patterns and permissions, with Kafka's codes
    acl       one ACL, and which ones are refused
    filters   which ACLs a request of an administrator means
    hosts     addresses and ranges of them
    rules     many ACLs, indexed, and the decision about one question

Brokers decide with `rules` (`serving.standard_authorizer`), and so does `odradek acl explain`, from what any Kafka says
about its ACLs.

Not obvious:

- A denial wins over every permission, whatever its pattern. Super users are not asked at all.
- Read, Write, Delete and Alter imply Describe, and AlterConfigs implies DescribeConfigs, but only where it is
  allowed: who may not read a topic may still describe it, if another ACL says so.
- `User:*` is everybody, also callers whose principal has another type.
- The name `*` in a literal pattern is any name; in a prefixed pattern it is the character.
- Ranges of addresses (10.0.0.0/8) are newer than Kafka 4.3, which takes such a host for a name that nobody has.
"""
