"""What policies are told and what they answer: the cluster, jobs, rate curves, states, plans."""
