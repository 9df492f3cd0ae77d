SELECT next FROM bus_sequence WHERE one = 1
