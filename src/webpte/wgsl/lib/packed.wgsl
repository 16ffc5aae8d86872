{# Macros about elements that may be bytes, which are named by dtype: i8, u8, i32, f32, f16, f16w. #}
{# How elements are stored: four bytes to a word. #}
{$ macro stored(type) -$}
{{ "u32" if type in ("i8", "u8") else type }}
{$- endmacro $}
{# Element `index`, which must be a name, of a storage array, as f32. #}
{$ macro fetched(array, index, type) -$}
{$ if type == "i8" -$}
f32(extractBits(bitcast<i32>({{ array }}[{{ index }} >> 2u]), ({{ index }} & 3u) * 8u, 8u))
{$- elif type == "u8" -$}
f32(extractBits({{ array }}[{{ index }} >> 2u], ({{ index }} & 3u) * 8u, 8u))
{$- else -$}
f32({{ array }}[{{ index }}])
{$- endif $}
{$- endmacro $}
