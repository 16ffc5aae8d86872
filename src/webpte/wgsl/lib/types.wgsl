{# Macros about element types, which are named by dtype: f32, f16, f16w, i32, bool. #}
{# How elements are stored: a bool takes a word. #}
{$ macro stored(type) -$}
{{ "u32" if type == "bool" else type }}
{$- endmacro $}
{# The type that values of a dtype are computed in. #}
{$ macro number_type(type) -$}
{{ "f32" if type in ("f32", "f16", "f16w") else "i32" }}
{$- endmacro $}
{# A stored element of dtype `source` as a value of dtype `target`, in its number type. NaN is true, by its bits. #}
{$ macro converted(value, source, target) -$}
{$ if target == "bool" and source in ("f32", "f16", "f16w") -$}
i32((bitcast<u32>(f32({{ value }})) & 0x7fffffffu) != 0u)
{$- elif target == "bool" and source == "i32" -$}
i32({{ value }} != 0)
{$- else -$}
{{ number_type(target) }}({{ value }})
{$- endif $}
{$- endmacro $}
{# A value in its number type, as it is stored. #}
{$ macro saved(value, type) -$}
{{ stored(type) }}({{ value }}{{ " != 0" if type == "bool" }})
{$- endmacro $}
