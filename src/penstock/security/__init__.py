"""Who somebody is and what they may do: pure rules, without sockets, clocks or a store."""
