"""Slips in lesson 08's reference."""

SLIPS = {
    "train_step": [
        ("gradients_never_cleared", {"    optimizer.zero_grad()\n": ""}),
    ],
}
