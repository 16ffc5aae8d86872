"""Subtitles of transcripts."""

from __future__ import annotations

from webpte.serve.openai.subtitles import srt, vtt


def test_subtitles_have_times_and_no_empty_lines():
    cues = [(0.0, 1.5, " a\n\nb "), (3661.25, 3662.0, "<c> & d")]
    assert srt(cues) == "1\n00:00:00,000 --> 00:00:01,500\na b\n\n2\n01:01:01,250 --> 01:01:02,000\n<c> & d\n\n"
    assert vtt(cues) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\na b\n\n01:01:01.250 --> 01:01:02.000\n&lt;c&gt; &amp; d\n\n"
    )
