"""hs.plan: what a run will take, before it is started."""
