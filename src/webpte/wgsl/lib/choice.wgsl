// An index counted from the end if negative, kept inside [0, size).
fn choice(index: i32, size: u32) -> u32 {
    var at = index;
    if (at < 0) {
        at += i32(size);
    }
    return u32(clamp(at, 0, i32(size) - 1));
}
