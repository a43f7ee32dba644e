"""Published models of the catalogue: Hugging Face name, licence and access.

Shapes are those of `model_catalogue`. Licences are copied from the model cards.
"""

from __future__ import annotations

from dataclasses import dataclass

from endpoints.fit.model_catalogue import find_shape
from endpoints.fit.model_shape import ModelShape

APACHE, MIT = "Apache 2.0", "MIT"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """`gated`: a download needs a Hugging Face token with access granted by the publisher."""

    name: str
    licence: str
    gated: bool = False

    @property
    def shape(self) -> ModelShape | None:
        return find_shape(self.name)


def _llama(version: str, *sizes: str) -> list[KnownModel]:
    licence = f"Llama {version} Community"
    return [
        KnownModel(f"meta-llama/Llama-{version}-{size}-Instruct", licence, gated=True)
        for size in sizes
    ]


def _distilled(*bases: str) -> list[KnownModel]:
    return [KnownModel(f"deepseek-ai/DeepSeek-R1-Distill-{base}", MIT) for base in bases]


KNOWN_MODELS = (
    *_llama("3.1", "8B", "70B", "405B"),
    *_llama("3.2", "1B", "3B"),
    *_llama("3.3", "70B"),
    KnownModel("mistralai/Mistral-7B-Instruct-v0.3", APACHE),
    KnownModel("mistralai/Mixtral-8x7B-Instruct-v0.1", APACHE),
    *(
        KnownModel(f"Qwen/Qwen2.5-{size}-Instruct", licence)
        for size, licence in (
            ("0.5B", APACHE),
            ("1.5B", APACHE),
            ("3B", "Qwen Research"),
            ("7B", APACHE),
            ("14B", APACHE),
            ("32B", APACHE),
            ("72B", "Qwen"),
        )
    ),
    *(KnownModel(f"Qwen/Qwen3-{size}", APACHE) for size in ("8B", "14B", "32B", "30B-A3B")),
    *_distilled("Qwen-1.5B", "Qwen-7B", "Qwen-14B", "Qwen-32B", "Llama-8B", "Llama-70B"),
    KnownModel("deepseek-ai/DeepSeek-V3", "DeepSeek"),
    KnownModel("deepseek-ai/DeepSeek-R1", MIT),
    KnownModel("HuggingFaceTB/SmolLM2-135M-Instruct", APACHE),
)
BY_NAME = {model.name.lower(): model for model in KNOWN_MODELS}
