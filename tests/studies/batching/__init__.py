"""Whether many sequences side by side are what each is alone, and what that costs."""
