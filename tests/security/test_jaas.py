"""`sasl.jaas.config`, as Java reads it; secrets stay out of messages."""

import pytest

from odradek.security.jaas import PLAIN, JaasError, parse_jaas


def options(text):
    return dict(parse_jaas(f"{PLAIN} required {text}").options)


def test_a_module_has_a_name_and_options():
    module = parse_jaas(f'{PLAIN} required username="a" password=\'b c\' user_ada="x" user_bob=y;')
    assert module.name == PLAIN
    assert module.passwords == {"ada": "x", "bob": "y"}
    assert module.options["password"] == "b c"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'p="a\"b\\c";', 'a"b\\c'),
        (r'p="tab\tand\101";', "tab\tandA"),
        ("p='it is \"so\"';", 'it is "so"'),
        ('p="a;b=c";', "a;b=c"),
        ("p=c2FsdA==;", "c2FsdA=="),
        ('p = "x" ;', "x"),
        ('p="x"; // the end', "x"),
        ('/* first */ p="x" // why\n;', "x"),
        ('p="http://x";', "http://x"),
        ('p="";', ""),
    ],
)
def test_values_are_read_with_their_quotes_escapes_and_comments(text, value):
    assert options(text) == {"p": value}


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f"{PLAIN} perhaps;",
        f"{PLAIN} required",
        f'{PLAIN} required password="hunter2"',
        f'{PLAIN} required password="hunter2;',
        f"{PLAIN} required password=;",
        f"{PLAIN} required password;",
        f"{PLAIN} required 'hunter2'=x;",
        f"{PLAIN} required password=hunter2; {PLAIN} required;",
        f"{PLAIN} required password=hunter2; /* open",
        f'"{PLAIN}" required;',
    ],
)
def test_what_is_not_a_module_is_refused_without_its_values(text):
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert "hunter2" not in str(refused.value)


def test_a_module_does_not_show_its_options():
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required password="hunter2";'))
