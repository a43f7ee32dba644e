"""Built-in instance types, each price with source and date.

Unknown prices are absent, never computed. Sizes are the vendors'; GPU memory is the value reported
by the driver, which is below the nominal size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

GIB = 1024**3
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Instance:
    """Instance type; `gpu_bytes` is per GPU, `price_usd_hour` the on-demand list price or None.
    `occupancy` divides the parts of a machine that is requested more than once over.
    """

    name: str
    vcpus: int
    memory_bytes: int
    gpu: str = ""
    gpus: int = 0
    gpu_bytes: int = 0
    price_usd_hour: float | None = None
    price_date: date | None = None
    price_source: str = ""
    occupancy: float = 1.0


_GPU_BYTES = {
    "A10G": 23028 * MIB,
    "L4": 23034 * MIB,
    "L40S": 46068 * MIB,
    "A100 40GB": 40960 * MIB,
    "A100 80GB": 81920 * MIB,
    "H100": 81559 * MIB,
    "H200": 143771 * MIB,
}

# name: GPU, GPUs, vCPUs, memory (GiB), SageMaker price
_AWS: dict[str, tuple[str, int, int, int, float | None]] = {
    "g5.xlarge": ("A10G", 1, 4, 16, 1.408),
    "g5.2xlarge": ("A10G", 1, 8, 32, 1.515),
    "g5.4xlarge": ("A10G", 1, 16, 64, 2.03),
    "g5.8xlarge": ("A10G", 1, 32, 128, 3.06),
    "g5.16xlarge": ("A10G", 1, 64, 256, 5.12),
    "g5.12xlarge": ("A10G", 4, 48, 192, 7.09),
    "g5.24xlarge": ("A10G", 4, 96, 384, 10.18),
    "g5.48xlarge": ("A10G", 8, 192, 768, 20.36),
    "g6.xlarge": ("L4", 1, 4, 16, 1.127),
    "g6.2xlarge": ("L4", 1, 8, 32, 1.222),
    "g6.4xlarge": ("L4", 1, 16, 64, 1.654),
    "g6.8xlarge": ("L4", 1, 32, 128, 2.518),
    "g6.16xlarge": ("L4", 1, 64, 256, None),
    "g6.12xlarge": ("L4", 4, 48, 192, 5.752),
    "g6.24xlarge": ("L4", 4, 96, 384, 8.344),
    "g6.48xlarge": ("L4", 8, 192, 768, 16.688),
    "g6e.xlarge": ("L40S", 1, 4, 32, 2.605),
    "g6e.2xlarge": ("L40S", 1, 8, 64, 2.803),
    "g6e.4xlarge": ("L40S", 1, 16, 128, 3.755),
    "g6e.8xlarge": ("L40S", 1, 32, 256, 5.661),
    "g6e.16xlarge": ("L40S", 1, 64, 512, None),
    "g6e.12xlarge": ("L40S", 4, 48, 384, 13.116),
    "g6e.24xlarge": ("L40S", 4, 96, 768, 18.832),
    "g6e.48xlarge": ("L40S", 8, 192, 1536, 37.664),
    "p4d.24xlarge": ("A100 40GB", 8, 96, 1152, 25.251286),
    "p4de.24xlarge": ("A100 80GB", 8, 96, 1152, None),
    "p5.48xlarge": ("H100", 8, 192, 2048, 63.296),
    "p5e.48xlarge": ("H200", 8, 192, 2048, None),
    "p5en.48xlarge": ("H200", 8, 192, 2048, None),
}
# Secondary source, not a price page; the date is when the record was retrieved.
_SAGEMAKER = ("AWS price list as recorded in public code, SageMaker, us-west-2", date(2026, 10, 1))
_ON_DEMAND = "EC2, us-east-1, on demand"
_RECORDED = date(2026, 11, 23)
_EC2: dict[str, tuple[float, str, date]] = {
    **{
        name: (price, _ON_DEMAND, _RECORDED)
        for name, price in (
            *(("g5.xlarge", 1.006), ("g5.2xlarge", 1.212), ("g5.4xlarge", 1.624)),
            *(("g5.8xlarge", 2.448), ("g5.16xlarge", 4.096), ("g5.12xlarge", 5.672)),
            *(("g5.24xlarge", 8.144), ("g5.48xlarge", 16.288)),
            *(("g6.xlarge", 0.8048), ("g6.2xlarge", 0.9776), ("g6.4xlarge", 1.3232)),
            *(("g6.8xlarge", 2.0144), ("g6.16xlarge", 3.3968), ("g6.12xlarge", 4.6016)),
            *(("g6.24xlarge", 6.6752), ("g6.48xlarge", 13.3504)),
            *(("g6e.xlarge", 1.861), ("g6e.2xlarge", 2.24208), ("g6e.4xlarge", 3.00424)),
            *(("g6e.8xlarge", 4.52856), ("g6e.16xlarge", 7.57719)),
            *(("g6e.24xlarge", 15.06559), ("g6e.48xlarge", 30.13118)),
        )
    },
    "g6e.12xlarge": (10.493, "EC2, us-east-1, on demand", date(2026, 10, 1)),
    "p4d.24xlarge": (21.957642, "EC2, us-east-1, on demand", date(2026, 11, 9)),
    "p4de.24xlarge": (27.44705, "EC2, us-east-1, on demand", date(2026, 11, 9)),
    "p5.48xlarge": (55.04, "EC2, us-east-1, on demand", date(2026, 11, 9)),
    "p5en.48xlarge": (63.296, "EC2, us-east-1, on demand", date(2026, 8, 1)),
}


def _make_instance() -> dict[str, Instance]:
    instance: dict[str, Instance] = {}
    for name, (gpu, gpus, vcpus, gib, price) in _AWS.items():
        plain = Instance(name, vcpus, gib * GIB, gpu, gpus, _GPU_BYTES[gpu])
        if name in _EC2:
            amount, source, day = _EC2[name]
            plain = replace(plain, price_usd_hour=amount, price_date=day, price_source=source)
        instance[name] = plain
        hosted = Instance(f"ml.{name}", vcpus, gib * GIB, gpu, gpus, _GPU_BYTES[gpu])
        if price is not None:
            source, day = _SAGEMAKER
            hosted = replace(hosted, price_usd_hour=price, price_date=day, price_source=source)
        instance[hosted.name] = hosted
    return instance


BUILTIN = _make_instance()
