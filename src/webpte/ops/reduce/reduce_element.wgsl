// Return where element e of those that an output reduces is; they start at `first`. A single run needs no division.
fn element_of(first: u32, e: u32) -> u32 {
$$ if single
    return first + e * p.inner_stride;
$$ else
    return first + run_of(e / p.inner) + e % p.inner * p.inner_stride;
$$ endif
}
