"""What is found, as plain frozen data: readable, drawable and comparable without torch and without the model."""
