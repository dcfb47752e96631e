"""Registry of data sets: name -> function ``(data_root) -> Dataset``.

One new file and one line here add a data set; one that lives elsewhere is named ``package.module:function`` instead.
Imports no torch.
"""

DATASETS: dict[str, str] = {
    "digits": "fa_audit.data.digits:digits",
    "cifar10": "fa_audit.data.cifar:cifar10",
    "cifar100": "fa_audit.data.cifar:cifar100",
    "synthetic_teacher": "fa_audit.data.synthetic_teacher:synthetic_teacher",
}
SUMMARIES = {  # the first lines of their documentation
    "digits": "Load handwritten digits: 1,437 training and 360 test images of 1 x 8 x 8, ten classes; `data_root` is"
    " unused.",
    "cifar10": "Load CIFAR-10: 50,000 training and 10,000 test images of 3 x 32 x 32, ten classes.",
    "cifar100": "Load CIFAR-100: as CIFAR-10 with one hundred classes.",
    "synthetic_teacher": "Draw 2,000 training and 2,000 test inputs of 1 x 4 x 4, ten classes; `data_root` is unused.",
}
