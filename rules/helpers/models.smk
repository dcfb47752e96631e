# Models of somebody else: their entries and files.

from fa_audit.experiments.models import model_entry


def model_files(*kinds):
    names = sorted(config.get("models", {}))
    return [f"results/models/{name}.{kind}" for name in names for kind in kinds or ("json", "md")]


@readable
def model_of(wildcards):
    return model_entry(config.get("models", {}), wildcards.model)


def model_data(wildcards):
    return f"results/data/{model_of(wildcards)['dataset']}.safetensors"


@readable
def model_weights(wildcards):
    path = model_of(wildcards)["weights"]
    # Without its input Snakemake would take results that are there as up to date.
    if path and not os.path.isfile(path):
        raise AuditError(f"models.{wildcards.model}.weights: no file '{path}' in {os.getcwd()}.")
    return path or []


@readable
def model_code(wildcards):
    maker = model_of(wildcards)["model"].partition(":")[0]
    return code_files("workflow_scripts/audit_model.py", maker)
