"""How products are computed: graphs that are kept, Jacobian products, a traced linearisation, under a memory budget."""
