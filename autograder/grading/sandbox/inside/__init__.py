"""The half of the sandbox that runs inside it: the warm process, the guard and the kernel."""
