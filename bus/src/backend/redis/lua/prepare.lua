-- Makes an endpoint where it is missing. KEYS: endpoint, [set of the topic's subscriptions]. ARGV: [subscription].

ensure(endpoint(KEYS[1]), KEYS[2], ARGV[1])
return 1
