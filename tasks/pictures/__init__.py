"""Pictures of graph versions: an offline page, and what changed as an image."""

from tasks.pictures.changes import data_url, diff_picture
from tasks.pictures.page import render_page

__all__ = ["data_url", "diff_picture", "render_page"]
