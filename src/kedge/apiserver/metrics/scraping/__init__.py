"""What stock kubelets say of themselves when asked, and the windows that are made of it here."""
