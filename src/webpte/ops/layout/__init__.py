"""The same elements elsewhere: views, slices, permutations, copies and casts."""
