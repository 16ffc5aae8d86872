// The coding of an image whose numbers are from lows[image] to highs[image]: rate codes for each unit, and a zero point.
fn range_of(image: u32) -> vec2<f32> {
    return vec2<f32>(min(lows[image], 0.0), max(highs[image], 0.0));
}

fn scale_of(image: u32) -> f32 {
    let range = range_of(image);
    return (range.y - range.x) / 255.0;
}

fn rate_of(image: u32) -> f32 {
    let range = range_of(image);
    return 255.0 / max(range.y - range.x, 1.1754944e-38);
}

// Either end gives the zero point; they differ by a rounding.
fn zero_of(image: u32) -> f32 {
    return clamp(round(-range_of(image).x * rate_of(image) - 128.0), -128.0, 127.0);
}
