{# Macros about elements that may be bytes, which are named by dtype: i8, u8, i32, f32, f16, f16w. e8m0: the exponent of a
   power of two, which is 0 if it is not a normal number. #}
{# How elements are stored: four bytes to a word. #}
{$ macro stored(type) -$}
{{ "u32" if type in ("i8", "u8", "e8m0") else type }}
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
{# Element `index` of an array of scales, as f32. #}
{$ macro scale_of(array, index, type) -$}
{$ if type == "e8m0" -$}
bitcast<f32>((({{ array }}[({{ index }}) >> 2u] >> ((({{ index }}) & 3u) * 8u)) & 255u) << 23u)
{$- else -$}
f32({{ array }}[{{ index }}])
{$- endif $}
{$- endmacro $}
