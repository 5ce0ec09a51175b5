"""The program: both workflows with their services; the model comes from `OPENAI_MODEL`."""

from agentflow import App
from definitions.board import open_board
from definitions.content_review import content_review
from definitions.order_system import open_orders
from definitions.refund import refund

app = App([refund, content_review], services=[open_orders, open_board])
