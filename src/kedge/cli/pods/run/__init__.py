"""`kedge run NAME --image=IMAGE`: a pod."""
