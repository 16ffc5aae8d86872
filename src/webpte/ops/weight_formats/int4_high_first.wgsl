{# As int4.wgsl. #}
{$ set high_first = true $}
{$ set places = [4, 0, 12, 8] $}
{$ include "weight_formats/int4.wgsl" $}
