"""A network as the user has it: copied, run at any parameters, in any mode, never touched."""
