"""Where attention is used: a small GPT, and the models of Hugging Face transformers."""
