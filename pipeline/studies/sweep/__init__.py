"""Search over recipe fields with Ray Tune, judged on classes held out of training. It feeds no other stage:
trials finish in no fixed order."""
