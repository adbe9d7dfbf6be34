"""How products are computed: graphs that are kept, Jacobian products, under a memory budget."""
