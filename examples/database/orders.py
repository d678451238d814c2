"""Add the orders that the command line names to the database, and print all orders."""

import sqlite3
import sys

with sqlite3.connect("/data/orders.db") as database:
    database.execute("create table if not exists orders (item text)")
    database.executemany("insert into orders values (?)", [(item,) for item in sys.argv[1:]])
    for number, item in database.execute("select rowid, item from orders"):
        print(number, item)
