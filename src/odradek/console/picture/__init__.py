"""A topic drawn: servers, replicas, who leads, how far logs go, and who reads what.

scene       what is drawn, without a place for it; all of it can be compared
asking      a scene from what the poller has seen and what brokers say about one topic
sentences   what changed between two scenes, told; pure
layout      where everything goes, for a given width; pure
album       the newest scene of each topic that somebody looks at, however many look
exercise    a group of three consumers, and a producer, for those who want to see something move
"""
