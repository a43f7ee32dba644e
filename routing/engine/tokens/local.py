"""A model's tokenizer and chat template together: prompts to texts, and to ids the full way.

Promises what tokenizer.py and template.py promise, and to say why this may not be what a worker
does. Must not know caches, threads or workers.
"""

from __future__ import annotations

from array import array

from routing.engine.tokens.outcomes import ERROR, NO_TOKENIZER, NoTokens
from routing.engine.tokens.requests import Chat, ServerDefaults, Text
from routing.engine.tokens.template import ChatTemplates, TemplateUnusable
from routing.engine.tokens.tokenizer import ModelFiles, TokenizerUnusable


class Local:
    """`template_problem` says why chats cannot be done; "" when they can."""

    def __init__(self, files: ModelFiles, defaults: ServerDefaults) -> None:
        self.tokenizer = files.tokenizer
        self.defaults = defaults
        self.template_problem = ""
        self._templates: ChatTemplates | None = None
        self.doubts = list(files.tokenizer.doubts)
        try:
            self._templates = ChatTemplates(files.templates, files.tokenizer.special_tokens)
        except TemplateUnusable as error:
            self.template_problem = str(error)
            return
        if self._templates.uses_clock:  # its day may begin at another moment than the worker's
            self.doubts.append("template_clock")

    def text(self, prompt: Text | Chat) -> str:
        """What is to be tokenized. Raises NoTokens."""
        if isinstance(prompt, Text):
            return prompt.text
        if self._templates is None:
            raise NoTokens(NO_TOKENIZER, self.template_problem)
        return self._templates.pick(prompt.tools).render(prompt, self.defaults)

    def ids(self, prompt: Text | Chat) -> array[int]:
        """The full way: no cuts, nothing remembered. Raises NoTokens."""
        text = self.text(prompt)
        try:
            if prompt.add_special_tokens:
                return self.tokenizer.encode_whole(text)
            return self.tokenizer.encode(text)
        except TokenizerUnusable as error:
            raise NoTokens(ERROR, str(error)) from None
