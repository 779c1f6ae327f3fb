"""The exercises inside the lessons: inputs, an independent oracle and a hint for each. `helpers.checks` runs them."""
