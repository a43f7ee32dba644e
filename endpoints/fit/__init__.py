"""Does a model fit on what it is to run on? Numbers first, a verdict after."""
