"""The figures of the report, as plain plotly dictionaries.

Colours that depend on light and dark are written as tokens (@ink, @muted, @rule, @surface, @idle, @data, @peers,
@reforming); the page puts the reader's own in. A trace that belongs to a network carries its name in
`meta["network"]`. Every text is escaped: plotly reads texts as HTML.
"""
