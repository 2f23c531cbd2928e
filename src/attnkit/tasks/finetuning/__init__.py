"""Fine-tuning of encoders: classification, tagging and question answering."""
