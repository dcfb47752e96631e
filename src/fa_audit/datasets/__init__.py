"""Registry of data sets: name -> function ``(data_root) -> Dataset``.

One new file and one line here add a data set. This file holds names only and imports no torch.
"""

DATASETS: dict[str, str] = {
    "digits": "fa_audit.datasets.digits:digits",
    "cifar10": "fa_audit.datasets.cifar:cifar10",
    "cifar100": "fa_audit.datasets.cifar:cifar100",
    "synthetic_teacher": "fa_audit.datasets.synthetic_teacher:synthetic_teacher",
}
