{# The offset of column c, whose scale is known. If columns are aligned, `wide` of them are read at once. #}
{$ macro offset_of(v, c, wide, first) $}
$$ if aligned and c % wide == 0
        let offset_codes{{ v }}_{{ c }} = offset_codes({{ v }}u, g, {{ first }} + n{{ c }});
$$ endif
{$ set code = "offset_codes%d_%d[%d]" % (v, c - c % wide, c % wide) if aligned else "offset_codes(%du, g, %s + n%d).x" % (v, first, c) $}
        let offset{{ v }}_{{ c }} = {{ code }} * offset_scale{{ v }}_{{ c }};
{$ endmacro $}
