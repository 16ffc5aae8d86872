"""Requests and answers in the forms of OpenAI's API."""
