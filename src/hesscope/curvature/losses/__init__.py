"""What a loss looks like to the curvature: values, output gradients and output curvatures, term by term."""
