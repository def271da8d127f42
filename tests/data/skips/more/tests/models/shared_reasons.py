WHY = "it's shared"
COUNT = 3
