"""Reports of training runs: a page that explains itself, curves as SVG, and numbers as CSV.

Belongs here: the content of the page of `report` and `watch`. Tables that the terminal also prints
are in `run_tables`, charts in `entity_env.views.chart`.
"""

from entity_env.cli.report.files import (
    report_csv as report_csv,
    report_svg as report_svg,
    require_curves as require_curves,
)
from entity_env.cli.report.page import (
    report_body as report_body,
    report_html as report_html,
    report_style as report_style,
)
from entity_env.cli.report.replays import (
    replay_id as replay_id,
    replay_pages as replay_pages,
)
