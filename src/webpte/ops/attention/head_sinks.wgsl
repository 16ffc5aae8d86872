{# With `sinks`, a type of loads: a score of each query head joins the softmax and has no value. They lie among the rotary
   tables, from load p.sinks of the cosines on. #}
$$ if sinks
{$ set per_load = 2 if sinks.endswith("x2") else 4 $}
fn sink_of(head: u32) -> f32 {
    return cosine[p.sinks + head / {{ per_load }}u][head % {{ per_load }}u];
}

$$ endif
