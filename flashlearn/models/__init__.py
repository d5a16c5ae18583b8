"""Models with attention: a small GPT, and those of Hugging Face transformers."""
