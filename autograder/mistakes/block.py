"""Known wrong answers of lesson 06, each with the sentence its author should hear."""
