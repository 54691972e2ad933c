"""Import of a Hugging Face ``config.json``."""

from cm384model.specs.huggingface.importer import Imported, import_config, read_config

__all__ = ["Imported", "import_config", "read_config"]
