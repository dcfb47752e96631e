"""Registry of data sets: name -> function ``(data_root) -> Dataset``.

To add a data set, write one file and one line here. A data set outside of this package is named
``package.module:function`` instead. This file holds names only and imports no torch.
"""

DATASETS: dict[str, str] = {
    "digits": "fa_audit.data.digits:digits",
    "cifar10": "fa_audit.data.cifar:cifar10",
    "cifar100": "fa_audit.data.cifar:cifar100",
    "synthetic_teacher": "fa_audit.data.synthetic_teacher:synthetic_teacher",
}
WITHOUT_FILES = ("digits", "synthetic_teacher")  # made from installed packages; data_root unused
