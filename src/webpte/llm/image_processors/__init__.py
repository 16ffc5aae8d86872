"""One file for each kind of image processor. They are found by listing this package."""
