"""What is on the screen: thin Textual widgets over the decisions of the modules beside this folder."""
