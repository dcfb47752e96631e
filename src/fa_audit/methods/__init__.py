"""Registry of training methods: name -> class.

One new file and one line here add a method. This file holds names only and imports no torch.
"""

METHODS: dict[str, str] = {
    "bp": "fa_audit.methods.bp:BP",
    "fa": "fa_audit.methods.fa:FA",
    "dfa": "fa_audit.methods.dfa:DFA",
}
