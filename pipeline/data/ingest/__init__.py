"""Converts the files of a data set to shards: lists the images, splits the classes into train and test,
checks each image and shrinks it if the settings require it. Imports no torch."""
